// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import Glibc
import Hub

/// `meshpost-hub gateways`: manages the known gateways.
struct Gateways: AsyncParsableCommand {
  static let configuration = CommandConfiguration(abstract: "Manage the known gateways.", subcommands: [Remove.self])

  struct Remove: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Remove a gateway with its tokens and all that is stored of it, while the hub runs.",
      discussion: """
        Messages that another gateway heard, too, stay. After an interruption the same command finishes the removal. \
        A [[token]] in hub.toml for this gateway, and its account at a broker, stay: end them first, or it is known \
        again when it comes.
        """)
    @OptionGroup var hub: HubOptions
    @Flag(help: "Remove it without a question.") var yes = false
    @Argument(help: "The gateway's id.") var gateway: String

    /// A hub that serves ends a token, and what was begun with it, within a second. One that does not answer here gets this time unasked.
    private static let (longestEnd, unaskedEnd): (Duration, Duration) = (.seconds(15), .seconds(2))

    func validate() throws {
      guard Name.isAllowed(gateway) else { throw ValidationError("a gateway's id must be \(Name.allowed)") }
      guard yes || isatty(0) != 0 else { throw ValidationError("expected --yes: there is nobody to ask") }
    }

    func run() async throws {
      let configuration = try hub.configuration()
      let folder = try configuration.gatewayTokens.map { _ in try Tokens.folder(hub) }
      let own = folder?.tokens.first { $0.gateway == gateway }
      try await hub.store(configuration, writes: true) { store in
        if own == nil, try await store.gateways(gateway).isEmpty,
          try await store.commands(of: gateway, limit: 1).isEmpty
        {
          throw failure("no gateway \(gateway) was ever here", 67)  // EX_NOUSER
        }
        if !yes { try ask("Delete \(gateway) and all that is stored of it?") }
        if let folder, own != nil {
          try Tokens.changing { () throws(HubConfiguration.Failure) in try folder.remove(gateway, keepsNewest: false) }
        }
        guard try await store.endBindings(of: gateway) == 0 else {
          throw failure(
            "a token that was bound to \(gateway) has ended; `systemctl reload meshpost-hub`, and repeat this command",
            75)  // EX_TEMPFAIL
        }
        if let secret = own?.secrets.first { try await waitForEnd(of: secret, configuration) }
        let removed = try await store.removeGateway(gateway) { took in
          // The hub works for as long as the step took.
          try await Task.sleep(for: max(took, .milliseconds(10)))
        }
        guard try await store.gateways(gateway).isEmpty else {
          let remedy = "end what lets it in, and repeat this command"
          throw failure("\(gateway) has come again meanwhile: \(remedy)", 75)  // EX_TEMPFAIL
        }
        print("removed \(gateway), \(removed.events) events, \(removed.messages) messages that nobody else heard")
      }
    }

    /// Waits until the hub refuses the token.
    private func waitForEnd(of secret: String, _ configuration: HubConfiguration) async throws {
      let end = ContinuousClock.now + Self.longestEnd
      while let answer = Doctor.response(configuration, "/v1/gateways/\(gateway)", token: secret) {
        if answer.status == 401 { return }
        guard ContinuousClock.now < end else {
          let words = "the hub still takes the token of \(gateway): see its log, and repeat this command"
          throw failure(words, 75)  // EX_TEMPFAIL
        }
        try await Task.sleep(for: .milliseconds(200))
      }
      try await Task.sleep(for: Self.unaskedEnd)
    }
  }
}
