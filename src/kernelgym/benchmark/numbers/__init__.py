"""What verdicts come to: rates, speeds, failures and costs, with intervals."""
