"""Write the table of environment variables of the docs anew."""

from tests.environment_table import PAGE, page

PAGE.write_text(page(), encoding="utf-8")
