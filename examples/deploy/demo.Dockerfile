# The demo, also for a Hugging Face Space: docker build -f examples/deploy/demo.Dockerfile -t pressbert-demo .
FROM python:3.11-slim
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY corpora corpora
COPY pretraining pretraining
COPY downstream downstream
COPY eval eval
COPY apps apps
COPY pressbert pressbert
RUN pip install --constraint constraints.txt ".[demo]" && rm -rf /build/*
# Spaces run containers as user 1000.
RUN useradd --uid 1000 --create-home pressbert && install -d -o pressbert /cache
ENV XDG_CACHE_HOME=/cache HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1
WORKDIR /home/pressbert
USER pressbert
EXPOSE 8501
ENTRYPOINT ["python", "-m", "pressbert", "demo"]
CMD ["--server.address", "0.0.0.0", "--server.port", "8501", "--server.headless", "true"]
