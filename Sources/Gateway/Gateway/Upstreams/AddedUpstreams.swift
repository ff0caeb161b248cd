// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import Messaging
import Relay
import Store
import UntrustedText

/// Upstreams that operators add and remove at run time.
extension Daemon {
  /// Returns warnings.
  func addUpstream(_ fields: JSONValue) throws(Refusal) -> [String] {
    if let name = fields["name"]?.string, configuration.upstreams.contains(where: { $0.name.isExactly(name) }) {
      throw .invalid("an upstream \"\(name)\" already exists")
    }
    let folder = UpstreamFolder(store: store.location)
    let added = try folder.add(fields)
    if let rival = added.upstream.rival(among: configuration.upstreams) {
      _ = folder.remove(added.upstream.name)
      throw .invalid(
        "\"\(rival)\" has a link to this hub already, which keeps one live link of a gateway: remove that one first, or add this one with --set link=http"
      )
    }
    var fresh = configuration
    fresh.upstreams.append(added.upstream)
    UpstreamSettings.separate(&fresh.upstreams)
    // Those of the last upstream in the list come last.
    let known = UpstreamSettings.sharedAtBrokers(configuration.upstreams).count
    let shared = UpstreamSettings.sharedAtBrokers(fresh.upstreams).dropFirst(known)
    do throws(StoreError) {
      try change(to: fresh)
    } catch {
      _ = folder.remove(added.upstream.name)
      throw .store(error)
    }
    return added.warnings + shared
  }

  func removeUpstream(_ name: String) throws(Refusal) {
    guard configuration.upstreams.contains(where: { $0.name.isExactly(name) }) else {
      throw .notFound(.upstream(name, known: configuration.upstreams.map(\.name)))
    }
    let folder = UpstreamFolder(store: store.location)
    guard folder.has(name) else {
      throw .invalid("\"\(name)\" is defined in \(inUse.file): remove it there, then run `systemctl reload meshpost`")
    }
    var fresh = configuration
    fresh.upstreams.removeAll { $0.name.isExactly(name) }
    UpstreamSettings.separate(&fresh.upstreams)
    try Refusal.translating { () throws(StoreError) in try change(to: fresh) }
    // Last: if the disk refuses the change, the upstream goes on, and its file says so at the next start, too.
    guard folder.remove(name) else {
      let reason = SystemError("unlink \(name).toml")
      throw .store(.unavailable("\(reason): the upstream has ended, and comes back at the next start"))
    }
  }
}
