#!/bin/sh
# tools/count.awk counts every kind of end of a test program.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
failures=0

counts() { # WHAT WANTED, log on stdin
    got=$(awk -f "$root/tools/count.awk")
    [ "$got" = "$2" ] || { echo "not ok: $1: '$got', wanted '$2'"; failures=$((failures + 1)); }
}

counts "no log" "0 0 0" </dev/null
counts "cases passed and skipped; two groups; one without cases" "15 0 2" <<'X'
==================================== 1/3 =====================================
test:         ltrain:offload / store_places
result:       exit status 0
----------------------------------- stdout -----------------------------------
[ RUN      ] seccomp_falls_back
[       OK ] seccomp_falls_back
[==========] 14 test(s) run.
----------------------------------- stderr -----------------------------------
[  PASSED  ] 10 test(s).
[  SKIPPED ] 2 test(s), listed below:
[  SKIPPED ] denied_io_uring_falls_back
[  SKIPPED ] one_direction_without_fixed_buffers_is_said

 2 SKIPPED TEST(S)
==================================== 2/3 =====================================
test:         ltrain:base / rng
result:       exit status 0
[  PASSED  ] 3 test(s).
[  PASSED  ] 1 test(s).
==================================== 3/3 =====================================
test:         ltrain:base / plain
result:       exit status 0
X
counts "cases failed" "4 2 0" <<'X'
test:         ltrain:ops / gemm
result:       exit status 2
[  PASSED  ] 4 test(s).
[  FAILED  ] 2 test(s), listed below:
[  FAILED  ] tall
[  FAILED  ] wide

 2 FAILED TEST(S)
X
counts "77 failed cases are no skip" "0 77 0" <<'X'
test:         ltrain:ops / gemm
result:       exit status 77
[  FAILED  ] 77 test(s), listed below:
X
counts "skipped whole, crashed, timed out, leaked after passing" "3 3 1" <<'X'
test:         ltrain:a / skipped
result:       exit status 77
test:         ltrain:a / crashed
result:       killed by signal 11 SIGSEGV
[ RUN      ] one
test:         ltrain:a / slow
result:       killed by signal 15 SIGTERM
test:         ltrain:a / leaky
result:       exit status 23
[  PASSED  ] 3 test(s).
X

[ "$failures" = 0 ]
