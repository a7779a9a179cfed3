# bash completion for idem(1)

_idem_words() {
    mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur")
}

_idem_flags() {
    case $1 in
    run)
        echo "--key --token --bind --vars --vars-file --at --label --quiet --verdict-fd --duplicate-exit --kill-after --config" \
            "--policy --store --help --preset --mode --key-expr --prefix --scope --fingerprint" \
            "--fingerprint-expr --json-max --ttl" \
            "--hold-ttl --lease --run-max --wait --recover --on-failure --attempts --backoff" \
            "--message --on-store-error --result-max --finish-timeout"
        ;;
    gateway)
        echo "--listen --upstream --scope --key --methods --fingerprint --probe --token --token-bind --js --label --enforce" \
            "--release-status --replay-headers --store --workers --config --print-config --module" \
            "--nginx --help --preset --mode --key-expr --prefix --fingerprint-expr --json-max --ttl" \
            "--hold-ttl --lease --run-max --wait --recover --on-failure --attempts --backoff" \
            "--on-duplicate --message --on-store-error --result-max --finish-timeout --token-ttl"
        ;;
    consume)
        echo "--queue --key --exec --exec-jsonl --to --store --workers --prefetch --order-by --dead-letter" \
            "--on-exit --on-status --to-timeout --to-ca --kill-after --drain --retry-topology --group --consumer" \
            "--body-field --label --unsafe-ttl --log --metrics --metrics-host --json --quiet --policy --config --help --preset" \
            "--mode --prefix --scope --fingerprint --fingerprint-expr --json-max --ttl --hold-ttl" \
            "--lease --run-max --recover --on-failure --attempts --backoff --on-store-error"
        ;;
    dead)
        echo "--queue --dead-letter --number --all --force --dry-run --body-field --audit --store --json --result" \
            "--help"
        ;;
    show) echo "--prefix --scope --token --hash --json --result --store --help" ;;
    list) echo "--prefix --state --since --json --store --help" ;;
    settle)
        echo "--done --failed --status --reason --ttl --force --prefix --scope --token --hash --state" \
            "--since --only --dry-run --yes --audit --store --help"
        ;;
    forget) echo "--prefix --scope --token --hash --force --audit --store --help" ;;
    stats) echo "--json --store --help" ;;
    doctor) echo "--store --nginx --nginx-exe --config --client-timeout --retry-span --prefix --json --help" ;;
    migrate) echo "--print --store --help" ;;
    eval) echo "--vars --vars-file --key --template --jsonl --help" ;;
    canon) echo "--help" ;;
    token) echo "--prefix --scope --bind --token-ttl --label --json --store --help" ;;
    sign)
        echo "--key-id --secret-file --form --method --header --data --data-file --headers" \
            "--sequence --nonce --time --show --help"
        ;;
    verify)
        echo "--secret-file --form --method --header --data --data-file --headers --sequence" \
            "--window --now --show --spend --store --json --help"
        ;;
    id) echo "--v7 --v4 --snowflake --number --name --store --help" ;;
    esac
}

# The value of the flag before the cursor; fails where it takes none that is known.
_idem_value() {
    case $prev in
    --mode) _idem_words "lock reject replay" ;;
    --recover) _idem_words "hold rerun" ;;
    --on-failure) _idem_words "release retry keep" ;;
    --on-store-error) _idem_words "closed open" ;;
    --preset) _idem_words "submit api payment queue job" ;;
    --state) _idem_words "issued running uncertain done failed damaged newer" ;;
    --on-duplicate) _idem_words "error success" ;;
    --enforce) _idem_words "on off" ;;
    --log) _idem_words "all problems none" ;;
    --retry-topology) _idem_words "declare none" ;;
    --form) _idem_words "rfc9421 classic" ;;
    --sequence) _idem_words "off increasing consecutive" ;;
    --method | -X) _idem_words "GET POST PUT PATCH DELETE" ;;
    --methods) _idem_words "POST PUT PATCH DELETE" ;;
    --scope | --fingerprint) _idem_words "none" ;;
    --lease | --ttl | --hold-ttl | --wait | --run-max | --since | --at | --kill-after | --window | --client-timeout | \
        --retry-span)
        _idem_words "30s 1m 10m 1h 24h 7d"
        ;;
    --config | -c | --module | --nginx | --nginx-exe | --only | --audit | --secret-file | --data-file) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    --store | -s)
        # Bash splits at colons: only what follows the scheme is replaced.
        if [[ $cur == lmdb:* || $cur == : ]]; then
            mapfile -t COMPREPLY < <(compgen -d -- "${cur#*:}")
        else
            _idem_words "lmdb:"
        fi
        ;;
    --key | -k | --label | --verdict-fd | --duplicate-exit | --policy | --prefix | --attempts | \
        --backoff | --message | --result-max | --finish-timeout | --hash | --status | --reason | \
        --listen | --upstream | --probe | --token-bind | --js | --release-status | --replay-headers | \
        --workers | --key-id | --header | -H | --data | -d | --headers | --nonce | --time | --now)
        COMPREPLY=()
        ;;
    *) return 1 ;;
    esac
}

_idem() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
    local command=${COMP_WORDS[1]} i

    COMPREPLY=()
    if ((COMP_CWORD == 1)) || { [[ $command == help ]] && ((COMP_CWORD == 2)); }; then
        _idem_words "run gateway consume dead show list settle forget stats doctor eval canon id token sign verify migrate help --version --help"
        return
    fi
    if [[ $command == run ]]; then
        # Behind `--` the command's own words begin.
        for ((i = 2; i < COMP_CWORD; i++)); do
            if [[ ${COMP_WORDS[i]} == -- ]]; then
                if declare -F _command_offset >/dev/null; then
                    _command_offset $((i + 1))
                elif ((COMP_CWORD == i + 1)); then
                    mapfile -t COMPREPLY < <(compgen -c -- "$cur")
                else
                    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                fi
                return
            fi
        done
    fi
    _idem_value && return
    _idem_words "$(_idem_flags "$command")"
}

complete -F _idem idem
