"""Files whose lines become events: followed through rotation, and taken up again where the broker had them."""
