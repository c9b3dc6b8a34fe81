"""The test bed: systemd hosts and a VLAN switch on one machine, described by lab/topology.yml."""
