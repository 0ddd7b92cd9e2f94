"""Files of labelled data -> examples, without torch."""
