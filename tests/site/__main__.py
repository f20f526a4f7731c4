"""Write the generated pages and the pictures of the tutorials anew.

python -m tests.site --write       # pages of docs/reference
python -m tests.site --pictures    # pictures of docs/tutorials/pictures
"""

import sys

from tests.site import pictures, reference

if "--write" in sys.argv:
    reference.write()
if "--pictures" in sys.argv:
    pictures.make()
if not {"--write", "--pictures"} & set(sys.argv):
    sys.exit(__doc__)
