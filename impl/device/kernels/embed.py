#!/usr/bin/env python3
"""embed.py FATBIN ASSEMBLY: writes assembly that holds the file between two symbols.

The file's hash is in it, so that the assembly changes whenever the file does.
"""

import hashlib
import os
import sys

fatbin, assembly = sys.argv[1:]
with open(fatbin, "rb") as file:
    content = hashlib.sha256(file.read()).hexdigest()
path = os.path.abspath(fatbin).replace("\\", "\\\\").replace('"', '\\"')
with open(assembly, "w", encoding="utf-8") as file:
    file.write(f"""/* {content} */
.section .rodata
.balign 16
.globl dsc_kernels_image
.hidden dsc_kernels_image
.type dsc_kernels_image, %object
dsc_kernels_image:
.incbin "{path}"
.size dsc_kernels_image, . - dsc_kernels_image
.globl dsc_kernels_image_end
.hidden dsc_kernels_image_end
dsc_kernels_image_end:
.section .note.GNU-stack, "", %progbits
""")
