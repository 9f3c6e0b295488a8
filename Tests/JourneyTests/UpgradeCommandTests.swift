import Glibc
import TestSupport
import Testing

@testable import mediafs

/// Which mounts `mediafs upgrade` takes.
@Suite(.serialized)
struct UpgradeCommandTests {
  @Test func oneByItselfOrAllOfThem() throws {
    try SystemRecords.unused {
      let place = try MountPlace()
      try place.takeOwnProgram()
      let none = try place.run("upgrade")
      #expect(none.status == 1 && none.text.contains("nothing of yours is mounted"), "\(none)")
      // Root's `reload` would take a mount that another test has for nobody; a user's own command knows of none.
      for words in [["verify"], ["set"], ["clear", "--all"], ["reload"]] {
        let lost = try place.wait(place.start([place.mediafs] + words, user: TestUser.canSwitch))
        #expect(lost.status == 1 && lost.text.contains("findmnt -t fuse.mediafs"), "\(words): \(lost)")
      }
      let (first, second) = (place.mountpoint, place.folder + "/second")
      #expect(try place.run("mount", first, "--manifest", place.manifest).status == 0)
      func server(_ mountpoint: String) throws -> Int32 {
        let helper = try #require(MountUsers.helper(of: mountpoint))
        return try #require(Processes.children(of: helper).first)
      }
      let before = try server(first)
      let only = try place.run("upgrade")
      #expect(only.status == 0, "\(only)")
      #expect(try server(first) != before)

      #expect(try place.run("mount", second, "--manifest", place.manifest).status == 0)
      let both = (try server(first), try server(second))
      let unclear = try place.run("upgrade")
      #expect(unclear.status == 2 && unclear.text.contains("there are 2 mounts (") && unclear.text.contains(second))
      for wrong in [["--all", first], [first, second]] {
        let end = try place.wait(place.start([place.mediafs, "upgrade"] + wrong))
        #expect(end.status == 2, "\(end)")
      }
      let unknown = try place.run("upgrade", place.folder)
      #expect(unknown.status == 1 && unknown.text.contains("is not at or below a mount"), "\(unknown)")
      #expect(try server(first) == both.0 && server(second) == both.1)
      let all = try place.run("upgrade", "--all")
      // The mounts of other tests are root's too: their helpers refuse this program, which is not in their places.
      #expect(all.status == 0 || all.text.contains("cannot upgrade "), "\(all)")
      for mountpoint in [first, second] {
        #expect(all.text.contains(mountpoint + ": served by process \(try server(mountpoint)) ("), "\(all)")
        #expect(!all.text.contains("cannot upgrade " + mountpoint), "\(all)")
      }
      #expect(try server(first) != both.0 && server(second) != both.1)

      let helper = try #require(MountUsers.helper(of: second))
      #expect(try place.run("unmount", second).status == 0)
      #expect(eventually { !Processes.isAlive(helper) })
      let gone = try place.run("upgrade", second)
      #expect(gone.status == 1 && gone.text.contains("no server runs"), "\(gone)")
      #expect(try place.run("unmount", first).status == 0)
    }
  }

  /// One mount that cannot be upgraded does not keep the others from it, whichever comes first.
  @Test func oneThatFailsKeepsNoOtherFromIt() throws {
    let place = try MountPlace()
    try place.takeOwnProgram()
    let mounts = [place.mountpoint, place.folder + "/second"]
    func store(_ mountpoint: String) -> String { mountpoint + "-store" }
    for mountpoint in mounts {
      let mounted = try place.run(
        "mount", mountpoint, "--manifest", place.manifest, "--store", store(mountpoint))
      try #require(mounted.status == 0, "\(mounted)")
    }
    func server(_ mountpoint: String) throws -> Int32 {
      let helper = try #require(MountUsers.helper(of: mountpoint))
      return try #require(Processes.children(of: helper).first)
    }
    for (broken, other) in [(mounts[0], mounts[1]), (mounts[1], mounts[0])] {
      let (socket, before) = (store(broken) + "/control", (try server(broken), try server(other)))
      try #require(rename(socket, socket + "-away") == 0)
      let end = try place.run("upgrade", "--all")
      #expect(end.status == 1 && end.text.contains("cannot upgrade \(broken): "), "\(end)")
      #expect(end.text.contains("\(other): served by process \(try server(other)) ("), "\(end)")
      #expect(try server(broken) == before.0 && server(other) != before.1)
      try #require(rename(socket + "-away", socket) == 0)
    }
    for mountpoint in mounts { #expect(try place.run("unmount", mountpoint).status == 0) }
  }

  /// The server tells of formats that this program does not share: the command says so, and asks for nothing.
  @Test func otherFormatsTakeAnUnmount() throws {
    let place = try MountPlace()
    let store = place.folder + "/store"
    let mounted = try place.run("mount", place.mountpoint, "--manifest", place.manifest, "--store", store)
    try #require(mounted.status == 0, "\(mounted)")
    let server = try #require(place.server)
    let strange = try place.start(["/usr/bin/python3", "-c", Self.strangeServer, store + "/control"])
    for format in ["helper", "memory", "store"] {
      try #require(eventually { place.text(strange).hasSuffix("\(format) is strange\n") }, "\(place.text(strange))")
      let end = try place.run("upgrade", place.mountpoint)
      #expect(end.status == 1 && end.text.contains("has version 99 of "), "\(end)")
      #expect(end.text.contains("that takes an unmount"), "\(end)")
    }
    let end = try place.wait(strange)
    #expect(end.status == 0 && !end.text.contains("upgrade"), "\(end)")
    #expect(place.server == server)
    #expect(try place.run("unmount", place.mountpoint).status == 0)
  }

  /// Takes a server's socket, and answers in its place once for each format, with another version of that.
  private static let strangeServer = """
    import json, os, socket, sys
    path = sys.argv[1]
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(path)
    peer.sendall(b'{"version":1,"request":"hello"}\\n')
    answer = json.loads(peer.makefile().readline())
    os.rename(path, path + '-real')
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    for name in 'helper', 'memory', 'store':
        formats = dict(answer['upgrade']['formats'], **{name: 99})
        said = dict(answer, upgrade=dict(answer['upgrade'], formats=formats))
        print(name, 'is strange', flush=True)
        peer, _ = listener.accept()
        for line in peer.makefile():
            request = json.loads(line)['request']
            if request != 'hello': print('asked for', request, flush=True)
            peer.sendall((json.dumps(said) + '\\n').encode())
    os.rename(path + '-real', path)
    """
}
