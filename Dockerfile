# One image for every process of compose.yaml; the command says which one it is.
FROM python:3.12-slim
ARG TORCH="torch==2.13.0"
ARG TORCH_INDEX="https://download.pytorch.org/whl/cpu"
# The keyring volumes take owner and mode from these folders: a keyring that others can read is refused.
RUN useradd --create-home esper && install -d -o esper -g esper -m 0700 /keys /master
WORKDIR /esper
COPY constraints.txt ./
RUN pip install --no-cache-dir "$TORCH" --extra-index-url "$TORCH_INDEX" -c constraints.txt
COPY pyproject.toml README.md ./
COPY esper esper
COPY workers workers
COPY examples examples
RUN pip install --no-cache-dir . -c constraints.txt
USER esper
