# NixOS: the agent as a service. In an image's configuration:
#   imports = [ image/recipes/nix/module.nix ];
#   services.mote-agent.enable = true;
#   services.mote-agent.tarball = target/package/mote-agent-0.1.0-x86_64.tar.gz;    # made by scripts/package tarball
# NixOS' own services for the Go agents (virtualisation.lxd.agent, virtualisation.incus.agent) have to be off.
# Not run here: nix 2.26 of Debian 13 evaluated it, with a library of stubs for nixpkgs.
{ config, lib, pkgs, ... }:

let
  cfg = config.services.mote-agent;
  package = pkgs.callPackage ./package.nix { inherit (cfg) tarball; };
in
{
  options.services.mote-agent = {
    enable = lib.mkEnableOption "mote, a guest agent for LXD and Incus virtual machines";
    tarball = lib.mkOption {
      type = lib.types.path;
      description = "The tarball that scripts/package makes.";
    };
  };

  config = lib.mkIf cfg.enable {
    environment.systemPackages = [ package ];
    services.udev.packages = [ package ];
    systemd.packages = [ package ];
    systemd.services.mote-agent = {
      # Units of packages are not enabled by their [Install].
      wantedBy = [ "multi-user.target" ];
      # A switch that the host runs by exec would end with the agent. The next boot starts the new one.
      restartIfChanged = false;
      # The host's commands get /run/current-system/sw/bin in their PATH from the agent itself.
    };
  };
}
