import TestSupport
import Testing

@testable import mediafs

/// Which mounts `mediafs upgrade` takes.
@Suite(.serialized)
struct UpgradeCommandTests {
  @Test func oneByItselfOrAllOfThem() throws {
    let place = try MountPlace()
    let none = try place.run("upgrade")
    #expect(none.status == 1 && none.text.contains("nothing of yours is mounted"), "\(none)")
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
    #expect(all.status == 0 && all.text.contains(first + ": served by") && all.text.contains(second), "\(all)")
    #expect(try server(first) != both.0 && server(second) != both.1)

    let helper = try #require(MountUsers.helper(of: second))
    #expect(try place.run("unmount", second).status == 0)
    #expect(eventually { !Processes.isAlive(helper) })
    let gone = try place.run("upgrade", second)
    #expect(gone.status == 1 && gone.text.contains("no server runs"), "\(gone)")
    #expect(try place.run("unmount", first).status == 0)
  }
}
