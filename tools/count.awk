# Reads meson's testlog.txt and prints "PASSED FAILED SKIPPED". cmocka programs count by their cases; a program that fails, crashes or
# is skipped without cases saying so counts as one, and so does a program that passes without cases.
function close_program() {
    if (!in_program)
        return
    if (result ~ /^exit status 77/ && !f && !s)
        s = 1
    else if (result !~ /^exit status (0|77)$/ && !f)
        f = 1
    else if (!p && !f && !s)
        p = 1
    passed += p
    failed += f
    skipped += s
    in_program = p = f = s = 0
}
/^test: +[^ ]/ { close_program(); in_program = 1; result = "" }
/^result: / && in_program && result == "" { sub(/^result: +/, ""); result = $0 }
/^\[  PASSED  \] [0-9]+ test\(s\)/ { p += $4 }
/^\[  FAILED  \] [0-9]+ test\(s\)/ { f += $4 }
/^\[  SKIPPED \] [0-9]+ test\(s\)/ { s += $4 }
END { close_program(); print passed + 0, failed + 0, skipped + 0 }
