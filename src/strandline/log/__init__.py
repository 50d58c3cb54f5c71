"""The persistent stream: blocks, manifests, index, storage, retention. No Spark, no operators."""
