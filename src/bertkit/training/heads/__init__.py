"""Heads trained on frozen features: logistic regression for texts, a BiLSTM for tags."""
