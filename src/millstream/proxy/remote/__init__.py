"""The backend of a proxy whose brokers are other processes: found through nameservers, asked over remoting."""
