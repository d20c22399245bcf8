#!/usr/bin/env bash
# no_card_test.sh TEST: without a card and without the fakes, a test on devices exits with 77 and says why.
set -uo pipefail
unset DSC_CUDA_LIBRARY
said=$(CUDA_VISIBLE_DEVICES='' DSC_TEST_DEVICE=1 "$1" 2>&1 >/dev/null)
code=$?
echo "exit $code: $said"
[[ $code == 77 && $said == "skipped: "*"no CUDA device"* ]]
