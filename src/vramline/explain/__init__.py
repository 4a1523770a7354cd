"""From a decision to words: trace, sentence, table, nearest miss, counterfactual. Runs only when asked."""
