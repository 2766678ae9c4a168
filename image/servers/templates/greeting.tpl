instance {{ instance.name }} made by {{ properties.who }} for {{ config_get("user.greeting", "nobody") }}
