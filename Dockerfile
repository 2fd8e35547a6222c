# The server of docs/serving.md, on CPUs, as a user without rights.
#
#   docker build --build-arg TORCH_INDEX=URL -t pressbert .
#   docker run --init --stop-timeout 30 -p 127.0.0.1:8000:8000 -v pressbert-cache:/cache pressbert
#
# Inside it listens on all addresses, because a container's localhost is nobody else's; -p as above gives it to this
# machine alone. It has neither passwords nor TLS: what other machines see should be a proxy.
FROM python:3.11-slim

# Index of torch's builds for CPUs, as PyTorch's page "Get Started" tells it. Other builds hold gigabytes of CUDA.
ARG TORCH_INDEX
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

WORKDIR /build
COPY constraints.txt ./
RUN test -n "$TORCH_INDEX" || { echo "TORCH_INDEX: not given; add --build-arg TORCH_INDEX=URL" >&2; exit 2; } \
    && pip install --index-url "$TORCH_INDEX" "$(grep '^torch==' constraints.txt)"
COPY pyproject.toml README.md LICENSE ./
COPY corpora corpora
COPY pretraining pretraining
COPY downstream downstream
COPY eval eval
COPY apps apps
RUN pip install --constraint constraints.txt ".[kernels,serve]" && rm -rf /build/*

# Choices of backends are kept here: mount it, and the next start does not measure again.
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin pressbert && install -d -o pressbert /cache /models
ENV XDG_CACHE_HOME=/cache HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1
VOLUME /cache
WORKDIR /models
USER pressbert

EXPOSE 8000
HEALTHCHECK --start-period=180s --interval=10s --timeout=3s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/ready', timeout=2)"]
# No shell in between, so that SIGTERM reaches the server, which answers what it accepted before it ends.
ENTRYPOINT ["python", "-m", "apps.serve", "--host", "0.0.0.0"]
CMD ["--summarize", "--classify", "--embed"]
