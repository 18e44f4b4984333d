"""`make bench`: Tenure beside its peers, each as durable as it offers, in one run on one machine."""
