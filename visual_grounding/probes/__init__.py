"""What a trained model does with its images: one probe a file. They run the model, so they need fairseq."""
