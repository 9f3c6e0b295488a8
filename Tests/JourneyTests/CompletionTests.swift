import Glibc
import TestSupport
import Testing

@testable import Server
@testable import mediafs

/// The shells complete what the tables of commands and options have.
@Suite struct CompletionTests {
  private static let scripts = [BashCompletion.script, ZshCompletion.script, FishCompletion.script]

  /// Each command and each of its options, in the part of each script that is for that command.
  @Test func everyOptionOfEveryCommandIsThere() {
    var options = 0
    for command in Program.commands where command.help.summary != nil {
      for name in command.names {
        let bash = part(
          of: BashCompletion.script, from: "    \(command.names.joined(separator: " | ")))\n", to: "      ;;\n")
        let zsh = part(
          of: ZshCompletion.script, from: "    \(command.names.joined(separator: "|")))\n", to: "      ;;\n")
        let fish = FishCompletion.script.split(separator: "\n").filter { line in
          line.contains("-n '__mediafs_command_is") && line.prefix { $0 != "'" }.count > 0
            && line.split(separator: "'").dropFirst().first?.split(separator: " ").contains(Substring(name)) == true
        }
        for option in command.help.options {
          options += 1
          #expect(
            bash.contains("--\(option.name) ") || bash.contains("--\(option.name)'"), "bash: \(name) --\(option.name)")
          #expect(
            zsh.contains("--\(option.name)[") || zsh.contains("--\(option.name)=[")
              || zsh.contains(",--\(option.name)}")
              || zsh.contains(",--\(option.name)=}"), "zsh: \(name) --\(option.name)")
          #expect(
            fish.contains { "\($0) ".contains(" -l \(option.name) ") }, "fish: \(name) --\(option.name)")
        }
      }
    }
    #expect(options > 60, "\(options) options were looked for")
    for command in Program.commands where command.help.summary == nil {
      for script in Self.scripts {
        #expect(!script.contains(" \(command.names[0]) "), "\(command.names[0]) is not for users")
      }
    }
  }

  private func part(of script: String, from start: String, to end: String) -> Substring {
    guard let start = script.firstRange(of: start), let end = script[start.upperBound...].firstRange(of: end) else {
      return ""
    }
    return script[start.upperBound..<end.lowerBound]
  }

  @Test func theShellsTakeTheirScripts() throws {
    try withScripts { place in
      for shell in ["bash", "zsh"] { try Command.succeed([shell, "-n", place.file(shell)]) }
      try Command.succeed(["fish", "--no-execute", place.file("fish")])
      let end = try Command.run([builtProduct("mediafs"), "completion", "csh"])
      #expect(end.status == 2 && end.errors.contains("csh is not one of bash, zsh and fish"))
    }
  }

  private func withScripts(_ body: (TestSupport.TemporaryFolder) throws -> Void) throws {
    let place = try TestSupport.TemporaryFolder()
    defer { do { try place.remove() } catch { Issue.record("\(error)") } }
    for shell in ["bash", "zsh", "fish"] {
      try place.write(try Command.succeed([builtProduct("mediafs"), "completion", shell]), to: shell)
    }
    try body(place)
  }

  /// What each shell offers behind the same words, which end with what is typed so far.
  @Test(arguments: [
    (["sta"], ["status"]), (["help", "upg"], ["upgrade"]), (["unmount", "--l"], ["--lazy"]),
    (["mount", "--format", "m"], ["m3u", "metalink"]), (["mount", "--contin"], ["--continue"]),
    (["status", "--js"], ["--json"]), (["completion", "z"], ["zsh"]), (["set", "max-s"], ["max-size="]),
    (["--vers"], ["--version"]), (["share", "ch"], ["check"]),
  ]) func wordsAreCompleted(_ words: [String], _ expected: [String]) throws {
    try withScripts { place in
      let bash = """
        source "$1"; shift; COMP_WORDS=(mediafs "$@"); COMP_CWORD=$#; _mediafs 2>/dev/null; printf '%s\\n' "${COMPREPLY[@]}"
        """
      let inBash = try Command.succeed(["bash", "--norc", "-c", bash, "bash", place.file("bash")] + words)
      #expect(inBash.split(separator: "\n").map { $0.filter { $0 != " " } }.sorted() == expected, "\(inBash)")
      let fish = "source \(place.file("fish")); complete -C 'mediafs \(words.joined(separator: " "))'"
      let inFish = try Command.succeed(
        ["fish", "--no-config", "-c", fish],
        environment: ["HOME": place.path, "TMPDIR": place.path, "XDG_CONFIG_HOME": nil])
      // Fish 4 also offers what has the same letters in this order, behind what begins with them.
      let offered = inFish.split(separator: "\n").map { String($0.prefix { $0 != "\t" }) }
        .filter { $0.hasPrefix(words.last ?? "") }
      #expect(offered.sorted() == expected, "\(inFish)")
    }
  }

  /// A person types and presses Tab.
  @Test(arguments: ["bash", "zsh", "fish"]) func aTabCompletes(_ shell: String) throws {
    try withJourney(.user) { journey in
      try journey.mount("http://127.0.0.1:1/film.mp4\n")
      let program = try Programs.path("mediafs")
      let folder = String(program.dropLast("/mediafs".count))
      try withTerminal(journey, columns: 200) { terminal in
        try terminal.command("cd \(journey.folder.path); export HOME=$PWD PATH=\(folder):$PATH")
        let start =
          switch shell {
          case "bash": "source <(mediafs completion bash); echo ready"
          case "zsh": "exec env PS1='$ ' zsh -f -i"
          // It leaves a folder among the temporary files.
          default: "exec env TMPDIR=$PWD fish --no-config"
          }
        try terminal.command(start)
        if shell == "zsh" {
          try terminal.command("autoload -Uz compinit; compinit -u -D; source <(mediafs completion zsh); echo ready")
        } else if shell == "fish" {
          try terminal.command("mediafs completion fish | source; echo ready")
        }
        try terminal.wait("the script to be read") { $0.split(separator: "\n").contains("ready") }
        try terminal.write("mediafs unmo")
        try terminal.type("Tab")
        try terminal.wait(for: "mediafs unmount")
        // The live mount, and a path in it. Other tests may have mounts.
        try terminal.write(String(journey.mountpoint.dropLast(2)))
        try terminal.type("Tab")
        try terminal.wait(for: "mediafs unmount \(journey.mountpoint)")
        // A busy shell may take ^C for what it runs just now. An erased line says that the key was taken.
        try terminal.wait("an empty line") { screen in
          if !screen.contains("mediafs unmount") { return true }
          try terminal.type("C-u")
          return false
        }
        try terminal.write("mediafs fetch \(journey.mountpoint)/fi")
        try terminal.type("Tab")
        try terminal.wait(for: "mediafs fetch \(journey.mountpoint)/film.mp4")
        try terminal.type("C-c")
      }
      try journey.unmount()
    }
  }
}
