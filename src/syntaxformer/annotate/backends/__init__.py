"""The backends: one module for each row of the table in `annotator`, imported when it is needed."""
