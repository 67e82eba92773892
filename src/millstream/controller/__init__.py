"""The controller: it decides for each broker name which replica is the master, and which replicas have all it says."""
