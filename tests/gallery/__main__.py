"""Make the pictures of reports/gallery anew."""

import sys

from tests.gallery import GALLERY, PICTURES, make

make(GALLERY, sys.argv[1:] or tuple(PICTURES))
