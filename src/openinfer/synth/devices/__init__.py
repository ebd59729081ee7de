"""Device descriptions: the JSON files, detection of this machine, and validation of documents."""
