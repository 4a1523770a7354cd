# Builds the image of every part of Vramline that runs in a cluster.
#
#   docker build -t vramline:0.1.0 .
#
# First stage: every package of requirements.lock is fetched and checked against its hash; from these alone the
# wheel is built and installed with what it needs to run. Second stage: Python and that folder, no build tools.
FROM python:3.13-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY requirements.lock ./
RUN pip download --quiet --require-hashes --only-binary :all: --dest /wheels --requirement requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m venv /tools \
 && /tools/bin/pip install --quiet --no-index --find-links /wheels hatchling \
 && /tools/bin/pip wheel --quiet --no-index --no-deps --no-build-isolation --wheel-dir /own . \
 && python -m venv /opt/vramline \
 && /opt/vramline/bin/pip install --quiet --no-index --find-links /wheels /own/*.whl \
 && /opt/vramline/bin/python -m pip uninstall --quiet --yes pip

FROM python:3.13-slim
LABEL org.opencontainers.image.title="vramline" org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/vramline/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
COPY --from=build /opt/vramline /opt/vramline
USER 65532:65532
ENTRYPOINT ["vramline"]
CMD ["--help"]
