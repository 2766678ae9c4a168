# Nix: the agent, from the tarball of scripts/package. The static program is used unchanged.
#   scripts/package tarball
#   nix-build -E 'with import <nixpkgs> { }; callPackage image/recipes/nix/package.nix { tarball = target/package/mote-agent-0.1.0-x86_64.tar.gz; }'
# Tested: nix 2.26 on Debian 13 evaluated it with stubs for nixpkgs. The tests run installPhase.
{ lib, stdenvNoCC, tarball }:

stdenvNoCC.mkDerivation {
  pname = "mote-agent";
  version = "0.1.0";
  src = tarball;
  dontFixup = true;
  installPhase = ''
    runHook preInstall
    install -D -m 755 mote-agent -t $out/bin
    install -D -m 644 services/mote-agent.service -t $out/lib/systemd/system
    install -D -m 644 services/99-mote-agent.rules -t $out/lib/udev/rules.d
    cp -r share $out/
    install -D -m 644 copyright third-party.gz -t $out/share/doc/mote-agent
    substituteInPlace $out/lib/systemd/system/mote-agent.service --replace-fail /usr/sbin/mote-agent $out/bin/mote-agent
    runHook postInstall
  '';
  meta = {
    description = "Guest agent for LXD and Incus virtual machines";
    license = with lib.licenses; [ mit asl20 ];
    platforms = [ "x86_64-linux" "aarch64-linux" "riscv64-linux" ];
    mainProgram = "mote-agent";
  };
}
