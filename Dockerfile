# Two images: the server of docs/serving.md on CPUs, without PyTorch, and training on GPUs. Both run as a user without
# rights, and neither downloads anything when it runs.
#
#   docker build -t pressbert .
#   docker run --init --stop-timeout 30 -p 127.0.0.1:8000:8000 -v pressbert-cache:/cache pressbert
#
#   docker build --target training -t pressbert-training .
#   docker run --gpus all -v "$PWD/runs:/runs" pressbert-training pretrain sample --out /runs/sample
#
# Inside, the server listens on all addresses, because a container's localhost is nobody else's; -p as above gives it to
# this machine alone. It has neither passwords nor TLS: what other machines see should be a proxy. Requests for other
# names than localhost, the container's or an address are refused; --allow-host adds names.
FROM python:3.11-slim AS wheel
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY corpora corpora
COPY pretraining pretraining
COPY downstream downstream
COPY eval eval
COPY apps apps
COPY pressbert pressbert
RUN pip install --constraint constraints.txt build && python -m build --wheel --outdir /wheels

FROM python:3.11-slim AS base
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
COPY --from=wheel /wheels /wheels
COPY constraints.txt /wheels/
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin pressbert \
    && install -d -o pressbert /cache /models /runs
ENV XDG_CACHE_HOME=/cache HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1

FROM base AS training
RUN pip install --constraint /wheels/constraints.txt "$(echo /wheels/pressbert-*.whl)[eval,scale]" && rm -rf /wheels
WORKDIR /runs
VOLUME /runs
USER pressbert
ENTRYPOINT ["python", "-m", "pressbert"]
CMD ["doctor"]

FROM base AS serving
RUN pip install --constraint /wheels/constraints.txt "$(echo /wheels/pressbert-*.whl)[kernels,serve]" && rm -rf /wheels
# Choices of backends are kept in /cache: mount it, and the next start does not measure again.
ENV OMP_NUM_THREADS=1
VOLUME /cache
WORKDIR /models
USER pressbert
EXPOSE 8000
HEALTHCHECK --start-period=180s --interval=10s --timeout=3s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/ready', timeout=2)"]
# No shell in between, so that SIGTERM reaches the server, which answers what it accepted before it ends.
ENTRYPOINT ["python", "-m", "apps.serve", "--host", "0.0.0.0"]
CMD ["--summarize", "--classify", "--embed"]
