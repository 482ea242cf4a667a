"""Who annotates: a module for each backend of the table in `annotator`, imported when it is asked for."""
