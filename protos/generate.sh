#!/bin/sh
# Writes the Python code of the wire contract beside the .proto files. grpcio-tools 1.62.3 on purpose: its code runs under protobuf
# 3.20 to 7, so one wheel serves TensorFlow 2.12 to 2.21 (docs/design.md). Needs an interpreter that has grpcio-tools==1.62.3 and
# mypy-protobuf==3.6.0: `make protos` makes one. Usage: protos/generate.sh PYTHON [OUT_DIR]
set -eu
python=$1
here=$(cd "$(dirname "$0")" && pwd)
out=${2:-$here}
PATH="$(dirname "$python"):$PATH" "$python" -m grpc_tools.protoc -I "$here" \
  --python_out="$out" --grpc_python_out="$out" --mypy_out="$out" "$here"/stepd/v1/*.proto
