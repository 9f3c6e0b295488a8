import Base
import Control
import CSystem
import Glibc
import Server
import Storing

/// How one mount does.
enum MountChecks {
  static func all(_ mountpoint: String) -> [Check] {
    [
      Check(name: "the mount") { mounted(mountpoint) },
      Check(name: "the mount helper") { with(mountpoint, helper) },
      Check(name: "the server") { with(mountpoint, server) },
      Check(name: "the list, the hosts and the limits") { with(mountpoint, service) },
      Check(name: "the store's disk") { with(mountpoint, disk) },
    ]
  }

  /// Whether the kernel has the mount, and something serves it.
  private static func mounted(_ named: String) -> [Finding] {
    do throws(CommandError) {
      // A live mount is found by its mountpoint alone, whatever this user remembers.
      let table: [MountTableEntry]
      do throws(Errno) { table = try MountTable.read() } catch {
        throw .failed("the table of mounts cannot be read: \(error)")
      }
      let path = try Files.absolute(named)
      let live = table.contains { $0.isMediafs && $0.mountpoint.utf8.elementsEqual(path.utf8) }
      let record: MountRecord
      do throws(CommandError) { record = try MountSelection.remembered().mount(named) } catch {
        guard live else { throw error }
        return [
          .note(
            "It is not among your mounts: it was mounted with another HOME or XDG_DATA_HOME. Only whether it answers is "
              + "checked.", toDo: "run doctor with the same variables")
        ] + answers(path)
      }
      guard table.last(where: { $0.mountpoint.utf8.elementsEqual(record.mountpoint.utf8) })?.isMediafs ?? false else {
        return [
          .note(
            "It is not mounted.",
            toDo: "mediafs mount \(record.mountpoint) --manifest \(record.manifest), "
              + "or mediafs forget \(record.mountpoint)")
        ]
      }
      return answers(record.mountpoint)
    } catch {
      switch error {
      case .failed(let message), .usage(let message):
        return [.problem("\(message).", toDo: "mediafs status without an argument shows your mounts")]
      }
    }
  }

  /// Each further check looks for the mount by itself: a disk that hangs may hold up even that. What is not mounted, or
  /// not known, the first check has told.
  private static func with(_ mountpoint: String, _ find: (MountRecord) -> [Finding]) -> [Finding] {
    guard let mount = try? MountSelection.remembered().mount(mountpoint), let table = try? MountTable.read(),
      table.last(where: { $0.mountpoint.utf8.elementsEqual(mount.mountpoint.utf8) })?.isMediafs ?? false
    else { return [] }
    return find(mount)
  }

  private static func answers(_ mountpoint: String) -> [Finding] {
    if csystem_is_dead_mount(mountpoint) == 1 {
      return [
        .problem(
          "It is a dead mount: its server and its helper have ended, and programs get an error.",
          toDo: "mediafs unmount --lazy \(mountpoint), and mount it again")
      ]
    }
    return [.ok("It is mounted, and answers.")]
  }

  private static func helper(_ mount: MountRecord) -> [Finding] {
    guard let helper = MountUsers.helper(of: mount.mountpoint, owner: mount.owner) else {
      return [
        .problem(
          "No mount helper is found: nothing starts the next server when this one ends.",
          toDo: "unmount it and mount it again; in a container, /proc must show the helper's process")
      ]
    }
    if let why = MountUsers.state(of: mount.mountpoint, owner: mount.owner) {
      return [
        .problem("No server runs. The mount helper (process \(helper)) says: \(why).", toDo: "see \(log(of: mount))")
      ]
    }
    return [.ok("The mount helper is process \(helper).")]
  }

  private static func log(of mount: MountRecord) -> String {
    mount.store.isEmpty ? "its log" : "its log (\(mount.store)/mediafs.log, or the file of --log-file)"
  }

  private static func server(_ mount: MountRecord) -> [Finding] {
    do throws(ControlFailure) {
      let (server, facts) = try ControlClient.connect(store: mount.store, owner: mount.owner).upgradeFacts()
      let runs = "Its server is process \(server.pid) (\(server.program))"
      let limits = descriptors(of: server.pid) + proxies(of: server.pid)
      guard let facts else {
        return [.note("\(runs), which is too old for an upgrade.", toDo: "unmount it and mount it again")] + limits
      }
      if let objection = ServerFormats.current.objection(to: facts.formats) {
        return [
          .note(
            "\(runs). This program cannot go on with it: \(objection).",
            toDo: "when nobody uses it, unmount it and mount it again")
        ] + limits
      }
      if let program = ProgramFile.running, facts.program != program {
        let failed = facts.failure.map { " The last upgrade failed: \($0)." } ?? ""
        return [
          .note("\(runs) of another file than this program.\(failed)", toDo: "mediafs upgrade \(mount.mountpoint)")
        ] + limits
      }
      return [.ok("\(runs), of this program.")] + limits
    } catch {
      return [.problem("Its server does not answer: \(error.message).", toDo: "see \(log(of: mount))")]
    }
  }

  /// The server may have been started where the limits are others than here: by systemd, or from another shell.
  private static func descriptors(of pid: Int32) -> [Finding] {
    guard let text = try? Files.read("/proc/\(pid)/limits", limit: 1 << 16) else { return [] }  // not of this /proc
    let line = String(decoding: text, as: UTF8.self).split(separator: "\n").first { $0.hasPrefix("Max open files ") }
    // The limit that holds, the one to which the server may raise it, the unit. "unlimited" is no number.
    guard let words = line?.split(separator: " "), words.count > 3, let most = UInt64(words[3]),
      most < MediafsServer.enoughDescriptors
    else { return [] }
    return [
      .problem(
        "Its server can open only \(most) files at once, and reads beyond that fail.",
        toDo: "raise the limit where it is started (ulimit -n, or LimitNOFILE= of a systemd unit), and mount it again")
    ]
  }

  /// It may have been started with other proxies than here. Only root may look, and a user into a server that was built
  /// without closing its file to reading (docs/SECURITY.md).
  private static func proxies(of pid: Int32) -> [Finding] {
    guard let text = try? Files.read("/proc/\(pid)/environ", limit: 1 << 20) else { return [] }  // as said
    let variables = text.split(separator: 0).map { String(decoding: $0, as: UTF8.self) }
    let set = MachineChecks.proxies { name in
      variables.first { $0.hasPrefix("\(name)=") }.map { String($0.dropFirst(name.count + 1)) }
    }
    if set.isEmpty { return [] }
    return [
      .note("Its server asks through a proxy: \(set).", toDo: "mount it without the variable if that is not meant")
    ]
  }

  /// What the server says of the list, the hosts and the store.
  private static func service(_ mount: MountRecord) -> [Finding] {
    do throws(ControlFailure) {
      let totals = try ControlClient.connect(store: mount.store, owner: mount.owner).totals(StatusQuery(paths: nil))
      return findings(totals, of: mount)
    } catch {
      return []  // the check of the server says it
    }
  }

  /// A clock that is wrong makes signed links end too early, or begin too late.
  private static func clock(_ line: LineStatus) -> Finding? {
    guard let ahead = line.clockAhead, ahead.magnitude >= longestDifference else { return nil }
    return .problem(
      "The clock here is \(TerminalText.duration(Double(ahead.magnitude))) \(ahead > 0 ? "ahead of" : "behind") that of "
        + "\(line.host): signed links end too early, or are not valid yet.",
      toDo: "set the clock (timedatectl set-ntp true), if it is not the host's that is wrong")
  }
  /// In seconds: a response may have waited that long.
  private static let longestDifference: UInt64 = 60

  static func findings(_ totals: StatusTotals, of mount: MountRecord) -> [Finding] {
    var findings: [Finding] = []
    if let problem = totals.mount?.listProblem {
      findings.append(
        .problem(
          "The list is not shown as it is: \(problem).",
          toDo: "mend the list, or what keeps its disk or server from answering, then: "
            + "mediafs reload \(mount.mountpoint)"))
    }
    if let full = totals.mount?.full {
      findings.append(.problem("The store takes no more: \(full).", toDo: "mediafs help set, mediafs help clear"))
    }
    findings += (totals.lines ?? []).compactMap(clock).prefix(1)
    for line in totals.lines ?? [] {
      guard let error = line.error else { continue }
      if let until = line.waitsUntil {
        findings.append(
          .problem(
            "\(line.host) does not answer: \(error). It is asked again at \(TerminalText.timeOfDay(until)).",
            toDo: "check the network and the host"))
      } else if (line.errorAge ?? .max) < 3600 {
        findings.append(
          .note(
            "\(line.host): \(TerminalText.error(error, age: line.errorAge)).",
            toDo: "mediafs status \(mount.mountpoint)"))
      }
    }
    if totals.failed > 0 {
      findings.append(
        .note(
          "\(TerminalText.count(totals.failed, "file")) failed.",
          toDo: "mediafs status \(mount.mountpoint) says why, and what to do"))
    }
    return findings.isEmpty ? [.ok("The list is shown as it is, and no host fails.")] : findings
  }

  private static func disk(_ mount: MountRecord) -> [Finding] {
    if mount.store.isEmpty { return [] }  // another user's, which root does not look at
    var findings = DiskChecks.folder(mount.store, of: "the store")
    if !Files.isInside(mount.library, mount.store) { findings += DiskChecks.folder(mount.library, of: "the library") }
    return findings
  }
}
