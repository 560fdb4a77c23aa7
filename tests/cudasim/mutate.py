#!/usr/bin/env python3
"""Plants the bugs of mutants.txt into copies of the kernels, one at a time, and checks that the named test fails for each.

mutate.py BUILD [NAME ...]: in a meson build directory whose cudasim tests are built; by default a sample of SAMPLE mutants that changes
with the kernels and the tests, with LTRAIN_LONG all, with NAMEs those. Every test must pass without a mutant first; that run's time
sets the limit of its mutants. Exit status 1 if a mutant survives, is undecided (still running at the limit), is stale (its pattern is
not there exactly once) or does not compile, or if a kernel file has no mutant.

A mutant in mutants.txt; white space in patterns matches any white space, so formatting does not make them stale:
    [short name]
    file: src/attention/sm90_forward.cu
    test: attention_sm90 many_tiles          (test_cudasim_<first word>, then its arguments)
    only: add.cu norm.cu                     (optional, for headers: the kernels to compile anew; else all that include it)
    - text to replace, unique in the file
    + replacement (may be empty; several - and + lines are joined)
"""
import concurrent.futures
import hashlib
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys
import tempfile
import time

SAMPLE = 5
SLOWER, LEAST = 20, 120  # a test with a mutant may take that many times as long as without, and that many seconds
NO_CODE = {'arch.cuh', 'ptx.cuh'}  # what the simulator compiles of them is macros only
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def read_list(path):
    mutants = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith('#'):
            continue
        if line.startswith('['):
            mutants.append({'name': line.strip('[] '), 'old': [], 'new': []})
        elif line.startswith(('file:', 'test:', 'only:')):
            mutants[-1][line[:4]] = line[5:].strip()
        elif line[0] in '-+':
            mutants[-1]['old' if line[0] == '-' else 'new'].append(line[2:])
        else:
            sys.exit(f'{path}:{number}: not a line of a mutant: {line}')
    names = [m['name'] for m in mutants]
    if len(set(names)) != len(names):
        sys.exit(f'{path}: a name stands twice: {sorted(n for n in names if names.count(n) > 1)[0]}')
    return mutants


def plant(mutant):
    """The mutated text of the mutant's file, or None and why not."""
    text = (ROOT / mutant['file']).read_text()
    words = '\n'.join(mutant['old']).split()
    found = list(re.finditer(r'\s+'.join(re.escape(w) for w in words), text)) if words else []
    if len(found) != 1:
        return None, f'its pattern stands {len(found)} times in {mutant["file"]}'
    return text[:found[0].start()] + '\n'.join(mutant['new']) + text[found[0].end():], ''


class Target:
    """The recipe of one test program: its kernels' compile commands and its link command, as ninja knows them."""

    def __init__(self, build, name):
        self.program = f'tests/cudasim/test_cudasim_{name}'
        lines = subprocess.run(['ninja', '-C', build, '-t', 'commands', self.program], capture_output=True, text=True, check=True).stdout
        self.kernels, self.link = [], None
        for line in lines.splitlines():
            output = re.search(r' -o (\S+)', line)
            if output and output[1].endswith('.sim.o'):
                self.kernels.append((output[1], line))
            elif output and output[1] == self.program:
                self.link = line
        if not self.link or not self.kernels:
            sys.exit(f'mutate.py: ninja knows no commands for {self.program}: is {build} built?')

    def objects_with(self, build, file):
        """Objects that depend on a source file."""
        for output, line in self.kernels:
            known = subprocess.run(['ninja', '-C', build, '-t', 'deps', output], capture_output=True, text=True, check=True).stdout
            names = [n.strip() for n in known.splitlines() if n.startswith(' ')]
            if any(os.path.realpath(os.path.join(build, n)) == os.path.realpath(ROOT / file) for n in names):
                yield output, line


def without_mutants():
    """Kernel files that no mutant changes, as complaints."""
    have = {m['file'] for m in read_list(HERE / 'mutants.txt')}
    files = [f for folder in ('ops', 'attention', 'recurrence', 'device/cuda') for f in (ROOT / 'src' / folder).glob('*.cu*')]
    return [f'no mutant  {f.relative_to(ROOT)}' for f in sorted(files) if str(f.relative_to(ROOT)) not in have and f.name not in NO_CODE]


def digest():
    """Hashes the kernels, the simulator and the tests, which decide the mutants that are drawn."""
    known = {ROOT / m['file'] for m in read_list(HERE / 'mutants.txt')}
    known |= {f for f in HERE.rglob('*') if f.is_file() and '__pycache__' not in f.parts}
    total = hashlib.sha256()
    for file in sorted(known):
        total.update(file.read_bytes())
    return total.digest()


def limit_of(build, test):
    """Seconds that a mutant's run of the test may take; the test must pass without one."""
    name, *arguments = shlex.split(test)
    start = time.monotonic()
    ran = subprocess.run([os.path.join(build, f'tests/cudasim/test_cudasim_{name}')] + arguments, capture_output=True, text=True,
                         errors='replace')
    if ran.returncode != 0:
        sys.exit(f'mutate.py: {test} fails without a mutant: {(ran.stdout + ran.stderr)[-1000:]}')
    return max(LEAST, SLOWER * (time.monotonic() - start))


def judge(build, mutant, targets, limits, scratch):
    text, why = plant(mutant)
    if text is None:
        return 'stale', why
    folder = pathlib.Path(tempfile.mkdtemp(dir=scratch))
    relative = pathlib.Path(mutant['file']).relative_to('src')
    (folder / relative).parent.mkdir(parents=True)
    (folder / relative).write_text(text)
    name, *arguments = shlex.split(mutant['test'])
    target = targets[name]
    link, compiled = target.link, 0
    only = mutant.get('only', '').split()
    for output, line in target.objects_with(build, mutant['file']):
        if only and pathlib.Path(output).name.removesuffix('.sim.o') not in only:
            continue
        new = str(folder / f'{compiled}.o')
        words = shlex.split(line)
        source = words.index('-c') + 1
        if os.path.realpath(os.path.join(build, words[source])) == os.path.realpath(ROOT / mutant['file']):
            words[source] = str(folder / relative)
        words = [w for w in words if w != '-g1']
        for option in ('-o', '-MF', '-MT'):
            if option in words:
                words[words.index(option) + 1] = new if option == '-o' else new + '.d'
        options = words.index('-x')  # after the compiler, which ccache may precede
        made = subprocess.run(words[:options] + [f'-I{folder}'] + words[options:], cwd=build, capture_output=True, text=True)
        if made.returncode != 0:
            return 'broken', made.stderr[:2000]
        link = link.replace(output, new)
        compiled += 1
    if compiled == 0:
        return 'stale', f'no kernel of {name} includes {mutant["file"]}'
    program = str(folder / 'test')
    link = link.replace(f'-o {target.program}', f'-o {program}')
    made = subprocess.run(link, shell=True, cwd=build, capture_output=True, text=True)
    if made.returncode != 0:
        return 'broken', made.stderr[:2000]
    try:
        ran = subprocess.run([program] + arguments, capture_output=True, text=True, timeout=limits[mutant['test']],
                             errors='replace')
    except subprocess.TimeoutExpired:
        return 'undecided', f'still running after {limits[mutant["test"]]:.0f} s'
    finally:
        os.remove(program)
    output = ran.stdout + ran.stderr
    if ran.returncode == 0:
        return 'SURVIVED', f'{mutant["test"]} passes'
    said = next((m for m in (re.search(f'^.*{word}.*$', output, re.M) for word in ('cudasim: ', 'ERROR', 'FAILED')) if m), None)
    if not said and ran.returncode > 0:
        return 'broken', f'exit status {ran.returncode} without a failure: {output[-500:]}'
    return 'killed', said[0][:150] if said else f'signal {-ran.returncode}'


def main():
    build, names = os.path.abspath(sys.argv[1]), sys.argv[2:]
    mutants = read_list(HERE / 'mutants.txt')
    chosen = [m for m in mutants if not names or m['name'] in names]
    if names and len(chosen) != len(names):
        sys.exit(f'mutate.py: no mutant named {sorted(set(names) - {m["name"] for m in chosen})[0]}')
    bad = 0
    for m in mutants:  # a stale pattern is found whatever the sample
        text, why = plant(m)
        if text is None:
            print(f'stale    {m["name"]}: {why}')
            bad += 1
    for complaint in without_mutants():
        print(complaint)
        bad += 1
    if not names and not os.environ.get('LTRAIN_LONG'):
        chosen = random.Random(digest()).sample(chosen, min(SAMPLE, len(chosen)))
    targets = {t: Target(build, t) for t in sorted({shlex.split(m['test'])[0] for m in chosen})}
    counts = {}
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:

        tests = sorted({m['test'] for m in chosen})
        limits = dict(zip(tests, pool.map(lambda t: limit_of(build, t), tests)))

        def run(m):
            start = time.monotonic()
            verdict, why = judge(build, m, targets, limits, scratch)
            return m, verdict, why, time.monotonic() - start

        for m, verdict, why, seconds in pool.map(run, chosen):
            counts[verdict] = counts.get(verdict, 0) + 1
            print(f'{verdict:8} {m["name"]} ({seconds:.0f} s): {why}', flush=True)
    bad += sum(n for verdict, n in counts.items() if verdict != 'killed')
    print(f'{counts.get("killed", 0)} of {len(chosen)} mutants killed ({len(mutants)} in the list), {bad} failures')
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
