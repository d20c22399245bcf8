#!/usr/bin/env bash
# Runs a program with two ranks on each of two hosts, which DSC_HOST_ID simulates: hosts.sh DSCRUN PROGRAM
set -uo pipefail
dscrun=$1 program=$2
port=$(/usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
DSC_TOKEN=$(printf 'ab%.0s' {1..32})
export DSC_TOKEN

pids=()
for host in 0 1; do
  DSC_HOST_ID=host$host "$dscrun" --nnodes 2 --node-rank $host --master-addr 127.0.0.1 --master-port "$port" -n 2 \
    --timeout 100 -- "$program" &
  pids+=($!)
done
rc=0
for pid in "${pids[@]}"; do wait "$pid" || rc=1; done
exit $rc
