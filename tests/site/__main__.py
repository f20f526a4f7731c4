"""Write the generated pages and the pictures of the tutorials anew.

python -m tests.site --write       # pages of docs/reference
python -m tests.site --pictures    # pictures of docs/tutorials/pictures
python -m tests.site --drawings    # drawings of machines and fabrics, docs/reference/drawings
python -m tests.site --notebook    # outputs of docs/tutorials/notebook.ipynb, and its page
"""

import sys

from tests.site import drawings, notebook, pictures, reference

if "--write" in sys.argv:
    reference.write()
if "--pictures" in sys.argv:
    pictures.make()
if "--drawings" in sys.argv:
    drawings.write()
if "--notebook" in sys.argv:
    notebook.write()
if not {"--write", "--pictures", "--drawings", "--notebook"} & set(sys.argv):
    sys.exit(__doc__)
