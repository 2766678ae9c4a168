# NixOS: the agent as a service. In an image's configuration:
#   imports = [ image/recipes/nix/module.nix ];
#   services.mote-agent.enable = true;
#   services.mote-agent.tarball = target/package/mote-agent-0.1.0-x86_64.tar.gz;    # made by scripts/package tarball
# Disable NixOS' own services for the Go agents (virtualisation.lxd.agent, virtualisation.incus.agent).
# Tested: nix 2.26 on Debian 13 evaluated it with stubs for nixpkgs. It was not built.
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
      # NixOS ignores the [Install] section of packaged units.
      wantedBy = [ "multi-user.target" ];
      # A switch run by the host through exec would end with the agent. The next boot starts the new one.
      restartIfChanged = false;
      # The host's commands get /run/current-system/sw/bin in their PATH from the agent itself.
    };
  };
}
