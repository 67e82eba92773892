"""Rules over one stream: what each asks of an event, all of them judged in one stage."""
