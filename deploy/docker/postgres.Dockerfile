# PostgreSQL where no registry can be reached: Debian's packages, laid out by build-images, and an entrypoint that takes
# the variables of the usual image. With a registry, build-images tags the usual image instead and this is not used.
FROM scratch

ADD rootfs.tar /
COPY postgres-entrypoint /usr/local/bin/docker-entrypoint.sh

ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PGDATA=/var/lib/postgresql/data \
    LANG=C.UTF-8
VOLUME /var/lib/postgresql/data
EXPOSE 5432
# Fast shutdown: sessions are ended, transactions rolled back.
STOPSIGNAL SIGINT
ENTRYPOINT ["/usr/local/bin/docker-entrypoint.sh"]
CMD ["postgres"]
