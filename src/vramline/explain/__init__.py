"""From a decision to words: card figures, sentence, nearest miss, counterfactual, trace, history.

Pure, and run only when somebody asks. Figures are those the decision used; whatever is said about a
changed world ("fits if …") was computed by running `decide` on that world.
"""
