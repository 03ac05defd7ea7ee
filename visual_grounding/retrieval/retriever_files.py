"""Names in a retriever's folder, whatever kind of retriever it is."""

RETRIEVER = "retriever"
VERSION = 1
CONFIG, WEIGHTS, TEXT_ENCODER = "config.json", "model.safetensors", "text_encoder"
