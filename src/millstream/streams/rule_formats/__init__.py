"""Rules from files, whatever their form: Sigma, our YAML and statements of SQL."""
