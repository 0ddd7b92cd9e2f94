"""The sample text: documents of several sentences, each fit to be a line."""

from bertkit.text.samples import sample_documents


def test_documents_of_several_sentences() -> None:
    documents = sample_documents()
    assert len(documents) > 10
    assert min(map(len, documents)) >= 2
    for sentence in (sentence for document in documents for sentence in document):
        assert sentence == sentence.strip() != ""
