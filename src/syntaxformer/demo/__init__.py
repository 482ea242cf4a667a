"""The bundled corpus and the first look: two translators trained in minutes, a table and a figure."""
