"""Device descriptions: the JSON files, this machine as a device, and what is wrong with a document."""
