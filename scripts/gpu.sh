#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# On a machine with GPUs: builds for their generation, runs the CUDA tests, measures every collective beside NCCL and, where
# python3 has it, PyTorch, and writes bench/results/<gpu>x<n>: .md with the machine, the versions, the commit and the
# tables, .json with all figures, and plots/ of four collectives where python3 has matplotlib. Beside it <gpu>x<n>_port.md,
# _chain.md and _programs.md, port channels, chains of collectives inside one kernel, programs beside the library's
# algorithms; and fused/<gpu>x<n>_experts.md and _rows.md, tokens to experts and back, all-reduces with their norms (on one
# GPU by 4 ranks that share it).
#
#   scripts/gpu.sh [--install] [--sanitize] [--no-test] [--tables=LIST] [--out=FOLDER] [--deps=FOLDER] [-- BENCH ARGUMENTS]
#
# --install    install missing packages; by default they are only named
# --sanitize   also run the tests under compute-sanitizer memcheck
# --tables=    of port, chain, programs, experts, rows, collectives (what the library chooses, and the peers: some six
#              minutes) and algorithms (to collectives, each algorithm by itself: up to ten minutes more); all of them by
#              default, and none for an empty list
# --out=       where the tables go instead of bench/results
# --deps=      third-party libraries that this machine lacks: a prefix with include/ and lib/, or a folder of .deb files
# Bench arguments replace the default --min-bytes=1K --max-bytes=1G --factor=4 --peers=nccl,nccl-symmetric. MSCCLPP_COMMIT names the commit where there is no git. NVLink multicast is kept off, here and in the libraries compared with.

# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

may_install=no
sanitize=no
test=yes
tables=port,chain,programs,experts,rows,collectives,algorithms
out=$root/bench/results
deps=
bench_arguments=(--min-bytes=1K --max-bytes=1G --factor=4 "--peers=nccl,nccl-symmetric")
while [ $# -gt 0 ]; do
  case "$1" in
    --install) may_install=yes ;;
    --no-install) may_install=no ;;
    --sanitize) sanitize=yes ;;
    --no-test) test=no ;;
    --tables=*) tables=${1#*=} ;;
    --out=*) out=${1#*=} ;;
    --deps=*) deps=${1#*=} ;;
    -h | --help) usage; exit 0 ;;
    --) shift; bench_arguments=("$@"); break ;;
    *) die "unknown argument $1; see scripts/gpu.sh --help" ;;
  esac
  shift
done

for table in ${tables//,/ }; do
  case "$table" in
    port | chain | programs | experts | rows | collectives | algorithms) ;;
    *) die "--tables=$tables: there is no table '$table'; see scripts/gpu.sh --help" ;;
  esac
done
wanted() { [[ ,$tables, == *,$1,* ]]; }
bench=no
[ -z "$tables" ] || bench=yes

export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1

gpus=$(gpu_count)
[ "$gpus" -gt 0 ] || die "nvidia-smi finds no GPU here; scripts/quickstart.sh and scripts/test.sh need none"
have_cuda_toolkit || die "no CUDA toolkit (nvcc) on the PATH or in ${CUDA_HOME:-/usr/local/cuda}, or MSCCLPP_USE_CUDA=OFF is set"
PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
[ "$sanitize" = no ] || have_command compute-sanitizer || die "compute-sanitizer is not on the PATH; it comes with the CUDA toolkit"

build=build/gpu
if [ -n "$deps" ]; then
  [ -d "$deps" ] || die "--deps=$deps is no folder"
  if compgen -G "$deps/*.deb" >/dev/null; then
    mkdir -p "$build/deps"
    for package in "$deps"/*.deb; do
      dpkg -x "$package" "$build/deps"
    done
    deps=$build/deps/usr
  fi
  use_deps "$deps"
fi

packages=(g++ cmake ninja-build python3 libfmt-dev libcli11-dev nlohmann-json3-dev)
[ "$test" = no ] || packages+=(doctest-dev)
[ "$bench" = no ] || packages+=(libbenchmark-dev)
require_packages "${packages[@]}"

say "configuring $build for $gpus GPU(s)"
on_off() { [ "$1" = yes ] && echo ON || echo OFF; }
cmake "${cmake_common[@]}" -B "$build" -DCMAKE_BUILD_TYPE=Release -DMSCCLPP_USE_CUDA=ON -DMSCCLPP_BUILD_SIM=OFF \
  "-DMSCCLPP_CUDA_ARCHITECTURES=$(gpu_architectures)" -DCMAKE_CUDA_FLAGS=-lineinfo -DMSCCLPP_TEST_GPU=ON \
  "-DMSCCLPP_BUILD_TESTS=$(on_off "$test")" "-DMSCCLPP_BUILD_EXAMPLES=$(on_off "$test")" \
  "-DMSCCLPP_BUILD_BENCH=$(on_off "$bench")"
say "building"
start=$SECONDS
status=0
# One broken source must not cost the time on this machine; what was built is still run.
cmake --build "$build" --parallel "$jobs" -- -k 0 || status=1
[ "$status" -eq 0 ] || warn "the build failed"
say "built in $((SECONDS - start)) s"

if [ "$test" = yes ]; then
  say "CUDA tests"
  ctest --test-dir "$build" --label-regex '^gpu$' --no-tests=error --output-on-failure || status=1
  if [ "$sanitize" = yes ]; then
    say "CUDA tests under compute-sanitizer memcheck"
    programs=()
    while IFS= read -r program; do programs+=("$program"); done < <(
      find "$build/test" "$build/examples" -type f -executable \( -name 'test_*_cuda' -o -name 'example_*_cuda' \) | sort)
    [ ${#programs[@]} -gt 0 ] || die "no CUDA test program was built"
    sanitize_failed=0
    for program in "${programs[@]}"; do
      # Checked kernels run many times slower, and so do the waits of one rank for another; at times one kernel has a GPU
      # for itself, so ranks share none.
      if MSCCLPP_TEST_SHARE_GPUS=OFF MSCCLPP_KERNEL_TIMEOUT=120 MSCCLPP_TIMEOUT=240 timeout --kill-after=10 300 \
        compute-sanitizer --tool memcheck --require-cuda-init=no --error-exitcode 99 "$program" >"$program.memcheck" 2>&1; then
        printf 'clean   %s\n' "${program##*/}"
      else
        printf 'FAILED  %s (exit status %d)\n' "${program##*/}" "$?"
        tail -n 40 "$program.memcheck"
        sanitize_failed=$((sanitize_failed + 1))
      fi
    done
    printf 'memcheck: %d programs clean, %d failed\n' "$((${#programs[@]} - sanitize_failed))" "$sanitize_failed"
    [ "$sanitize_failed" -eq 0 ] || status=1
  fi
fi

if [ "$bench" = yes ]; then
  gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | sed -n 1p)
  slug=$(slug_of "$gpu")
  mkdir -p "$out"
fi

# heading TEXT: the title of a file of results, and what it was measured with.
heading() {
  printf '# %s on %s x %s\n\n' "$1" "$gpus" "$gpu"
  measured_on
}

# A program of the benchmark that prints a table of its own; what follows its title are its arguments.
side_table() {
  local name=$1 title=$2 program=mscclpp-bench-$1_cuda folder=$out
  shift 2
  wanted "$name" || return 0
  [ "$name" != experts ] && [ "$name" != rows ] || folder=$out/fused
  local file=$folder/${slug}x${gpus}_$name.md
  mkdir -p "$folder"
  [ "$gpus" -ge 2 ] || [ "$name" = experts ] || [ "$name" = rows ] || { warn "not measured: $title, which needs 2 GPUs"; return; }
  say "$title"
  if timeout --kill-after=10 200 "$build/bench/$program" "$@" | tee "$build/bench-$name.txt"; then
    { heading "$title"; printf '\n`%s`\n\n' "$program${*:+ $*}"; cat "$build/bench-$name.txt"; } >"$file"
    say "wrote $file"
  else
    warn "$program failed; $file is not written"
    status=1
  fi
}
side_table port "Port channels"
side_table chain "Chains inside one kernel"
side_table programs "Programs" --late
if [ "$gpus" -ge 2 ]; then
  side_table experts "Tokens to experts and back" --tokens=128,4096
  side_table rows "All-reduces with their norms"
else
  side_table experts "Tokens to experts and back, 4 ranks that share the GPU," --tokens=128,4096 --ranks=4
  side_table rows "All-reduces with their norms, 4 ranks that share the GPU," --ranks=4
fi

if wanted collectives || wanted algorithms; then
  say "benchmark"
  # What the library chooses, then each algorithm by itself. A process for each collective: one that hangs, a peer's too,
  # takes its own table with it and no other. The tables are standard output; progress goes to the terminal.
  algorithms=(auto)
  ! wanted algorithms || algorithms+=(all)
  collectives=allreduce,allgather,reducescatter,alltoall,broadcast,reduce,gather,scatter,sendrecv
  arguments=()
  for argument in "${bench_arguments[@]}"; do
    case "$argument" in
      --collective=all) ;;
      --collective=*) collectives=${argument#*=} ;;
      *) arguments+=("$argument") ;;
    esac
  done
  results=()
  for algorithm in "${algorithms[@]}"; do
    : >"$build/bench-$algorithm.txt"
    for collective in ${collectives//,/ }; do
      name=$build/bench-$algorithm-$collective
      command=("$build/bench/mscclpp-bench" --device=cuda "--collective=$collective" "--algorithm=$algorithm"
        ${arguments[@]+"${arguments[@]}"} "--output=$name.json")
      rm -f "$name.json"
      if ! timeout --kill-after=10 200 "${command[@]}" | tee "$name.txt"; then
        warn "not measured to its end: $collective with --algorithm=$algorithm"
        status=1
      fi
      [ "$algorithm" != auto ] || [ ! -s "$name.json" ] || results+=("$name.json")
      { printf '\n`%s`\n\n```\n' "${command[*]}"; cat "$name.txt"; printf '```\n'; } >>"$build/bench-$algorithm.txt"
    done
  done
  if python3 -c 'import torch' 2>/dev/null; then
    for backend in cuda nvshmem; do
      say "PyTorch symmetric memory, $backend backend"
      name=$build/torch-$backend.json
      rm -f "$name"
      timeout --kill-after=10 270 python3 -m torch.distributed.run --standalone "--nproc_per_node=$gpus" \
        bench/peers/torch_symmetric_memory.py "--backend=$backend" "--output=$name" ||
        warn "PyTorch symmetric memory, $backend backend: not measured to its end, or with wrong results"
      [ ! -s "$name" ] || results+=("$name")
    done
  fi
  if [ ${#results[@]} -eq 0 ]; then
    warn "nothing of the collectives was measured; no results are written"
    status=1
  else
    file=$out/${slug}x$gpus.md
    {
      heading Collectives
      printf '\n## Against the peers\n\nThe choice of the library, and the best of each peer. Time per operation, the slowest rank, median.\n\n'
      python3 scripts/bench_results.py "${results[@]}"
      printf '\n## Everything\n'
      for algorithm in "${algorithms[@]}"; do cat "$build/bench-$algorithm.txt"; done
      printf '\nLinks between the GPUs:\n\n```\n'
      nvidia-smi topo -m 2>/dev/null | sed 's/\x1b\[[0-9;]*m//g' || true
      printf '```\n'
    } >"$file"
    python3 scripts/bench_results.py "${results[@]}" "--output=${file%.md}.json"
    say "wrote $file and ${file%.md}.json"
    if python3 -c 'import matplotlib' 2>/dev/null; then
      printf '\n## Plots\n\n' >>"$file"
      mkdir -p "$out/plots"
      python3 scripts/plot_bench.py "${file%.md}.json" "--out=$out/plots" "--name=${slug}x$gpus" \
        --collective=allreduce,allgather,reducescatter,alltoall |
        while IFS= read -r plot; do printf '![%s](plots/%s)\n' "$(basename "$plot" .svg)" "$(basename "$plot")"; done >>"$file"
    else
      warn "no plots, since python3 has no matplotlib; scripts/plot_bench.py --install ${file%.md}.json gets it"
    fi
  fi
fi

exit "$status"
