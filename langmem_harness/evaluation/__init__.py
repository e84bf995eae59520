"""Evaluation: retrieval measured on questions with known answers. Replay of recorded conversations is in `replay`."""

from langmem_harness.evaluation.datasets import DATASETS, Collection, Dataset, Question, load_dataset
from langmem_harness.evaluation.metrics import hit_at_k, ndcg_at_k, recall_at_k, reciprocal_rank_at_k
from langmem_harness.evaluation.retrieval import RetrievalReport, measure_retrieval, render_retrieval_table

__all__ = [
    "DATASETS",
    "Collection",
    "Dataset",
    "Question",
    "RetrievalReport",
    "hit_at_k",
    "load_dataset",
    "measure_retrieval",
    "ndcg_at_k",
    "recall_at_k",
    "reciprocal_rank_at_k",
    "render_retrieval_table",
]
