"""What Alertmanager cannot tell by itself: robots of WeCom and DingTalk, tenants' channels, facts for the
rules."""
