# Finds comments that docs/conventions.md would have otherwise: `awk -f tools/speech.awk FILE...` prints FILE:LINE and what is wrong.
#   headless   a comment that begins with What, Of, That, Those, Whether, Where, As or How
#   no verb    a comment right before a function of src or bench that does not begin with a verb in the third person
function first_word(text) {
    sub(/^[[:space:]]*(\/\*+|\/\/|#|"""|\*)[[:space:]]*/, "", text)
    match(text, /^[A-Za-z'-]+/)
    return RLENGTH > 0 ? substr(text, 1, RLENGTH) : ""
}
function is_headless(word) { return tolower(word) ~ /^(what|of|that|those|whether|where|as|how)$/ }
function is_verb(word) {
    return word ~ /^[A-Z][a-z-]+s$/ && word !~ /^(This|Its|Bytes|Tokens|Rows|Columns|Elements|Names|Seconds|Values|Ranks|Files|Keys|Units|Blocks|Pairs|Programs|Instructions|Operands|Buffers|Chunks|Sequences|Documents|Texts|Tensors|Shards|Messages|Parameters|Gradients|Moments|Others|Always|Besides|Perhaps|Unless|Less)$/
}
function is_function(line) {
    return line ~ /^(template|[A-Za-z_][A-Za-z0-9_ *]*[ *][A-Za-z_0-9]+\()/ && line !~ /^(typedef|return|else|enum [a-z_]+ \{|struct [a-z_]+ \{)/
}
FNR == 1 {
    c = FILENAME ~ /\.(c|h|cu|cuh|inc)$/
    asks_verbs = c && FILENAME ~ /^(src|bench)\//
    pending = ""
    inside = 0
}
c {
    # A comment that ends on the line before this one belongs to the function that begins here.
    if (pending != "" && !inside) {
        if (is_function($0) && asks_verbs && !is_verb(pending) && !is_headless(pending))
            print FILENAME ":" pending_line ": no verb: " pending
        pending = ""
    }
    rest = $0
    if (!inside && match(rest, /\/\*/)) {
        comment = substr(rest, RSTART)
        word = first_word(comment)
        if (is_headless(word))
            print FILENAME ":" FNR ": headless: " word
        if ($0 ~ /^\/\*/ && comment !~ /^\/\* ----/) {
            pending = word == "" ? "?" : word
            pending_line = FNR
        }
        inside = comment !~ /\*\//
    } else if (inside && rest ~ /\*\//) {
        inside = 0
    }
    next
}
/^[[:space:]]*(#|""")[[:space:]]*[A-Za-z]/ {
    if (is_headless(first_word($0)) && !after_comment)
        print FILENAME ":" FNR ": headless: " first_word($0)
}
{ after_comment = /^[[:space:]]*#/ } # a comment's further lines begin as they like
