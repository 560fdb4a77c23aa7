#!/usr/bin/env python3
"""Plants the host-side bugs of mutants.txt, each behind a run-time switch: plant.py LIST ROOT FILE OUT writes a copy of source FILE
(a path below ROOT) in which bug number k happens where the environment has LT_MUTANT=k; plant.py LIST names prints a C array of all names.

A mutant in the list (white space matches any white space; `kind: statements` where the text is no expression):
    [name]
    file: src/device/cuda/streams.c
    - text, unique in the file
    + replacement
"""
import re
import sys

SWITCH = '''#include <stdlib.h>
static inline int planted(int k)
{
    static int mutant = -1; /* read once: some texts are in inner loops */
    if (mutant < 0) {
        const char *number = getenv("LT_MUTANT");
        mutant = number ? atoi(number) : 0;
    }
    return mutant == k;
}
#line 1 "%s"
'''


def read_list(path):
    mutants = []
    for number, line in enumerate(open(path).read().splitlines(), 1):
        if not line.strip() or line.startswith('#'):
            continue
        if line.startswith('['):
            mutants.append({'name': line.strip('[] '), 'kind': 'expression', '-': [], '+': []})
        elif line.startswith(('file:', 'kind:')):
            mutants[-1][line[:4]] = line[5:].strip()
        elif line[0] in '-+':
            mutants[-1][line[0]].append(line[2:])
        else:
            sys.exit(f'{path}:{number}: not a line of a mutant: {line}')
    return mutants


def plant(text, k, mutant):
    words = ' '.join(mutant['-']).split()
    found = list(re.finditer(r'\s+'.join(re.escape(w) for w in words), text))
    if len(found) != 1:
        sys.exit(f"mutant \"{mutant['name']}\": its text is there {len(found)} times, not once")
    old, new = found[0].group(0), '\n'.join(mutant['+'])
    if mutant['kind'] == 'statements':
        both = f'do {{ if (planted({k})) {{ {new} }} else {{ {old} }} }} while (0);'
    else:
        both = f'(planted({k}) ? ({new}) : ({old}))'
    return text[:found[0].start()] + both + text[found[0].end():]


mutants = read_list(sys.argv[1])
if sys.argv[2] == 'names':
    print('static const char *const mutants[] = {"none",', ', '.join('"%s"' % m['name'] for m in mutants), '};')
else:
    root, name, out = sys.argv[2:]
    text = open(f'{root}/{name}').read()
    for k, mutant in enumerate(mutants, 1):
        if mutant['file'] == name:
            text = plant(text, k, mutant)
    open(out, 'w').write(SWITCH % name + text)
