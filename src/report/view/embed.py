"""Writes files as arrays of bytes in C: embed.py OUTPUT.c STYLE.css SCRIPT.js ... The scripts become one array, in their order."""
import sys

output, style, *scripts = sys.argv[1:]
texts = {"report_style": [style], "report_script": scripts}
with open(output, "w") as f:
    f.write('#include "report/page.h"\n')
    for name, paths in texts.items():
        data = b"\n".join(open(path, "rb").read() for path in paths)
        rows = [", ".join(str(b) for b in data[i : i + 32]) for i in range(0, len(data), 32)]
        f.write("const unsigned char %s[] = {\n%s,\n0};\nconst size_t %s_bytes = %d;\n" % (name, ",\n".join(rows), name, len(data)))
